# What never changes stays as it is.
BEGIN {
    for (day = 1; day <= 7; day++) seen[day] = 3
    found = forecast(seen, 7)
    print "what stays at 3 is forecast as " found
    exit (found == 3 ? 0 : 1)
}
