/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the test programs have in common: checks that say where they failed. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* The call returns this number. */
#define RETURNS(call, code)                                                                    \
    do {                                                                                       \
        unsigned got_ = (unsigned)(call), want_ = (unsigned)(code);                            \
        if (got_ != want_) {                                                                   \
            fprintf(stderr, "%s:%d: %s returned %u, not %u\n", __FILE__, __LINE__, #call, got_, want_); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

#define OK(call) RETURNS(call, 0)

static inline void fill(unsigned char *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

static inline int filled(const unsigned char *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (unsigned char)(i * 31 + i / 251 + seed))
            return 0;
    return 1;
}

#endif
