"""Says how many microseconds of processor time a program that calls no socket loses to a library: `cost.py LIBRARY PROGRAM`.

Both ways take turns, and the least of each counts: what else the machine does can only add to it."""
import os
import resource
import sys

TURNS = 50


def cost(environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.posix_spawn(sys.argv[2], [sys.argv[2]], environment)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the program failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


ways = [{}, {"LD_PRELOAD": sys.argv[1]}]
costs = [[cost(way) for way in ways] for _ in range(TURNS)]
without, preloaded = (min(turn[way] for turn in costs) for way in (0, 1))
print(round((preloaded - without) * 1e6))
