/* Copies with every call of icopy.h over the card that is named, or, without one, what the calls say then. */
#include <icopy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN (1 << 20)

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "line %d: " #condition ": %s\n", __LINE__, icopy_error());       \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static void refused(int result, const char *why) {
    if (result != -1 || !strstr(icopy_error(), why)) {
        fprintf(stderr, "%d: %s, in place of: %s\n", result, icopy_error(), why);
        exit(1);
    }
}

static void without_a_card(void) {
    char a[16];
    uint64_t variable = 0;
    refused(icopy_open("nonsense"), "is no PCI address");
    refused(icopy_open("0000:ff:1f.7"), "there is no PCI device");
    refused(icopy_open(NULL), "ICOPY_CARD");
    const char *none = "there is no card";
    refused(icopy_close(), none);
    refused(icopy_register(a, sizeof a), none);
    refused(icopy_register_receive(a, sizeof a), none);
    refused(icopy_unregister(a, sizeof a), none);
    refused(icopy(a, a + 8, 8), none);
    refused(icopy_notif(a, a + 8, 8, &variable, 1), none);
    refused(icopy_k2u(a, a + 8, 8), none);
    refused(icopy_k2u_notif(a, a + 8, 8, &variable, 1), none);
    refused(icopy_test(&variable, 1), none);
    refused(icopy_wait(&variable, 1), none);
    refused(icopy_progress(), none);
}

static void fill(unsigned char *bytes, size_t len, unsigned seed) {
    for (size_t at = 0; at < len; at++)
        bytes[at] = (unsigned char)(at * 31 + at / 251 + seed);
}

static void with_a_card(const char *card) {
    unsigned char *from = malloc(LEN), *to = malloc(LEN), *ring = malloc(LEN), *expected = malloc(LEN);
    static volatile uint64_t variables[4];
    CHECK(icopy_open(card) == 0);
    refused(icopy_open(card), "has a card already");
    refused(icopy(to, from, LEN), "is not inside memory that was registered");
    CHECK(icopy_register(from, LEN) == 0 && icopy_register(to, LEN) == 0);
    CHECK(icopy_register_receive(ring, LEN) == 0 && icopy_register((void *)variables, sizeof variables) == 0);

    /* Two copies, the second of which notifies: both are done then. */
    fill(from, LEN, 1);
    CHECK(icopy(to, from, 1000) == 0);
    CHECK(icopy_notif(to + 1000, from + 1000, LEN - 1000, &variables[1], 42) == 0);
    CHECK(icopy_wait(&variables[1], 42) == 0 && icopy_test(&variables[1], 42) == 1);
    CHECK(memcmp(to, from, LEN) == 0 && variables[0] == 0 && variables[2] == 0);

    /* Out of a receive buffer. */
    fill(ring, LEN, 2);
    CHECK(icopy_k2u(to, ring, 4096) == 0);
    CHECK(icopy_k2u_notif(to + 4096, ring + 4096, LEN - 4096, &variables[2], 43) == 0);
    CHECK(icopy_wait(&variables[2], 43) == 0 && memcmp(to, ring, LEN) == 0);

    /* Odd places and lengths, each checked with what is around it. */
    for (int round = 0; round < 200; round++) {
        size_t len = 1 + (size_t)rand() % 70000, at = (size_t)rand() % (LEN - len), source = (size_t)rand() % (LEN - len);
        memcpy(expected, to, LEN);
        memcpy(expected + at, from + source, len);
        CHECK(icopy_notif(to + at, from + source, len, &variables[3], 100 + (uint64_t)round) == 0);
        CHECK(icopy_wait(&variables[3], 100 + (uint64_t)round) == 0);
        CHECK(memcmp(to, expected, LEN) == 0);
    }

    /* Nothing moves. */
    memcpy(expected, to, LEN);
    refused(icopy(to, to + 100, 200), "must not overlap");
    refused(icopy(to, ring, 200), "is in a receive buffer");
    refused(icopy_k2u(to, from, 200), "is in memory of the program");
    refused(icopy(to, from + 1, LEN), "the source");
    refused(icopy(to + 1, from, LEN), "the destination");
    refused(icopy_notif(to, from, 100, (void *)(to + 96), 1), "must not overlap");
    refused(icopy_notif(to, from, 100, (void *)((char *)variables + 4), 1), "multiple of 8");
    refused(icopy_wait(&variables[0], 99), "no copy is running whose notification could store 99");
    refused(icopy_register(from, 0), "memory has at least one byte");
    refused(icopy_register(from, (size_t)-1), "ends where addresses do");
    CHECK(icopy_progress() == 1);
    CHECK(memcmp(to, expected, LEN) == 0 && variables[0] == 0);

    /* A card that is taken again; memory that is registered again. */
    CHECK(icopy_unregister(from, LEN) == 0);
    refused(icopy(to, from, 1), "the source");
    CHECK(icopy_register(from, LEN) == 0 && icopy(to, from, 1) == 0);
    CHECK(icopy_close() == 0 && icopy_open(card) == 0 && icopy_close() == 0);
    puts("all copies are right");
}

int main(int count, char **arguments) {
    if (count > 1)
        with_a_card(arguments[1]);
    else
        without_a_card();
    return 0;
}
