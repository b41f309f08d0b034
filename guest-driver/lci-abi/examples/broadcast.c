/* Broadcasts of node 0: how long until all have answered one, and how many bytes per second: broadcast [BYTES [ROUNDS]] */
#include "wait.h"

#include <lci.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile int answers, arrived;
static int bytes = 1000, rounds = 200, wrong;

int lci_upcall(int src, void *pkt, int size, int mcast)
{
    int number;
    (void)src;
    if (!mcast) {
        answers++;
        return 0;
    }
    memcpy(&number, pkt, sizeof number);
    if (size != bytes || number != arrived)
        wrong = 1;
    arrived++;
    /* An upcall may send. The last packet of the second part is answered, too. */
    if (arrived <= rounds || arrived == 2 * rounds) {
        void *answer = lci_send_alloc();
        lci_ucast_launch(0, answer, 0);
    }
    return 0;
}

static void broadcast(int number)
{
    void *pkt = lci_send_alloc();
    memset(pkt, 0, bytes);
    memcpy(pkt, &number, sizeof number);
    if (lci_bcast_launch(pkt, bytes)) {
        fprintf(stderr, "%s\n", lci_error());
        exit(1);
    }
}

static void wait_for(volatile int *what, int count)
{
    while (*what < count)
        wait_a_moment();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        bytes = atoi(argv[1]);
    if (argc > 2)
        rounds = atoi(argv[2]);
    if (bytes < (int)sizeof(int) || bytes > LCI_PACKET_MAX || rounds < 1) {
        fprintf(stderr, "a packet has %d to %d bytes here\n", (int)sizeof(int), LCI_PACKET_MAX);
        return 1;
    }
    if (lci_init(NULL)) {
        fprintf(stderr, "%s\n", lci_error());
        return 1;
    }
    int others = lci_size() - 1;
    if (lci_me() == 0) {
        uint64_t start = lci_now_ns();
        for (int round = 0; round < rounds; round++) {
            broadcast(round);
            wait_for(&answers, (round + 1) * others);
        }
        uint64_t answered = lci_now_ns() - start;
        start = lci_now_ns();
        for (int round = 0; round < rounds; round++)
            broadcast(rounds + round);
        wait_for(&answers, (rounds + 1) * others);
        uint64_t stream = lci_now_ns() - start;
        printf("broadcast of %d bytes: right, answered by all after %.1f us (mean), %.1f MB/s\n", bytes, answered / 1e3 / rounds,
               (double)bytes * rounds * 1e3 / stream);
    } else {
        wait_for(&arrived, 2 * rounds);
    }
    return lci_finalize() || wrong;
}
