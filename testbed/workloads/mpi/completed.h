// How the kernels report a run, in the form of the NAS Parallel Benchmarks, which programs that compare runs can read.
#pragma once

#include <stdbool.h>
#include <stdio.h>

typedef struct completed {
    const char *name;
    char class;
    int points;
    int iterations;
    int ranks;
    double seconds;
    // Floating-point operations of all processes.
    double operations;
    double messages;
    bool successful;
} completed;

static inline void print_completed(const completed *run) {
    printf("\n %s Benchmark Completed\n Class           = %24c\n Size            =           %4dx%4dx%4d\n"
           " Iterations      = %24d\n Time in seconds = %24.3f\n Total processes = %24d\n Mop/s total     = %24.2f\n"
           " Messages sent   = %24.0f\n Verification    = %24s\n",
           run->name, run->class, run->points, run->points, run->points, run->iterations, run->seconds, run->ranks,
           run->operations / run->seconds / 1e6, run->messages, run->successful ? "SUCCESSFUL" : "UNSUCCESSFUL");
}
