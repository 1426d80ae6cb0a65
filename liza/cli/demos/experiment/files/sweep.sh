# Measures the forecast; Liza says where the results go.
awk -f forecast.awk -f measure.awk > measured && mv measured "${AGENTIC_RESULTS_CSV:-results.csv}"
