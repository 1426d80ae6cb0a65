# The forecast of the next value, where n were seen.
function forecast(seen, n) {
    return seen[n]
}
