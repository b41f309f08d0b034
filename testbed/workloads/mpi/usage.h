// What all programs do with their arguments: --help prints how they are called; anything else that they do not know ends them.
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Prints how the program is called and ends it, if that is what the arguments ask for. To be called before MPI_Init, so that it needs no mpirun.
static inline void answer_help(int count, char **arguments, const char *usage) {
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
            printf("usage: %s\n", usage);
            exit(0);
        }
    }
}

// Reads a whole number between two limits; ends the program with a sentence if it is none.
static inline long number(const char *text, long least, long most, const char *usage) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != 0 || errno != 0 || value < least || value > most) {
        fprintf(stderr, "%s is no number from %ld to %ld\nusage: %s\n", text, least, most, usage);
        exit(2);
    }
    return value;
}
