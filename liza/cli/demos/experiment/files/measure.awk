# The mean distance of the forecast from what came, for three series.
function distance(one, other) {
    return one > other ? one - other : other - one
}

function measure(number, name, text,    values, count, day, missed) {
    count = split(text, values, " ")
    for (day = 3; day <= count; day++) missed += distance(forecast(values, day - 1), values[day])
    print number "," name "," missed / (count - 2)
}

BEGIN {
    print "config_id,series,error"
    measure(0, "steady", "1 2 3 4 5 6")
    measure(1, "slow", "10 11 11 12 12 13")
    measure(2, "steep", "1 4 7 10 13 16")
}
