#!/bin/sh
# Simulate x'' = -stiffness x - damping x' from x = 1 at rest, and compare with measured.txt beside this script.
# Usage: oscillator.sh INPUT; prints "misfit = <root mean square difference>".
exec awk '
FNR == NR { if ($1 !~ /^#/) input[$1] = $2; next }
$1 !~ /^#/ { time[++n] = $1; measured[n] = $2 }
END {
    if (!("stiffness" in input) || n == 0) { print "no stiffness or no measurements" > "/dev/stderr"; exit 1 }
    k = input["stiffness"]; c = input["damping"]; h = 0.01; x = 1; v = 0; t = 0
    for (i = 1; i <= n; i++) {
        while (t < time[i] - h / 2) {       # the midpoint rule
            xm = x + h / 2 * v;  vm = v + h / 2 * (-k * x - c * v)
            x += h * vm;         v += h * (-k * xm - c * vm);      t += h
        }
        sum += (x - measured[i]) ^ 2
    }
    printf "steps = %d\nmisfit = %.9g\n", t / h + 0.5, sqrt(sum / n)
}' "$1" "$(dirname "$0")/measured.txt"
