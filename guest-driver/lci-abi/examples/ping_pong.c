/* Half a round trip of a packet between nodes 0 and 1: ping_pong [BYTES [ROUNDS]] */
#include "wait.h"

#include <lci.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile int arrived;
static int bytes = 16, wrong;

int lci_upcall(int src, void *pkt, int size, int mcast)
{
    const unsigned char *data = pkt;
    (void)src, (void)mcast;
    if (size != bytes || data[0] != (unsigned char)arrived)
        wrong = 1;
    arrived++;
    return 0;
}

static void send_round(int round)
{
    void *pkt = lci_send_alloc();
    memset(pkt, round, bytes);
    if (lci_ucast_launch(1 - lci_me(), pkt, bytes)) {
        fprintf(stderr, "%s\n", lci_error());
        exit(1);
    }
}

static void wait_for(int count)
{
    while (arrived < count)
        wait_a_moment();
}

static int by_length(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rounds = 1000;
    if (argc > 1)
        bytes = atoi(argv[1]);
    if (argc > 2)
        rounds = atoi(argv[2]);
    if (bytes < 1 || bytes > LCI_PACKET_MAX || rounds < 1) {
        fprintf(stderr, "a packet has 1 to %d bytes\n", LCI_PACKET_MAX);
        return 1;
    }
    if (lci_init(NULL)) {
        fprintf(stderr, "%s\n", lci_error());
        return 1;
    }
    int me = lci_me();
    uint64_t *ns = calloc(rounds, sizeof *ns);
    for (int round = 0; round < rounds && me < 2; round++) {
        uint64_t start = lci_now_ns();
        if (me == 0)
            send_round(round);
        wait_for(round + 1);
        if (me == 1)
            send_round(round);
        ns[round] = (lci_now_ns() - start) / 2;
    }
    if (me == 0 && !wrong) {
        qsort(ns, rounds, sizeof *ns, by_length);
        printf("ping-pong of %d bytes: right, half a round trip takes %.2f us (median)\n", bytes, ns[rounds / 2] / 1e3);
    }
    free(ns);
    return lci_finalize() || wrong;
}
