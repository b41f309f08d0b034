/* A shared memory of regions after CRL: each region has a home node; who wants to read or write it gets a copy, and copies of others are
 * taken back first. All nodes add to all regions, and the sums are checked: regions [ROUNDS] */
#include "wait.h"

#include <lci.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGIONS 16
#define WORDS 32
#define NODES_MAX 64

enum op { READ, WRITE, TAKE_BACK, GIVEN_BACK, COPY, DONE };
enum state { NONE, SHARED, EXCLUSIVE };

struct message {
    int32_t op, region, state;
    int64_t words[WORDS];
};

/* A node's copy. One that is in use is given back when its use ends. */
static struct {
    enum state state;
    int in_use, is_wanted;
    int64_t words[WORDS];
} copies[REGIONS];

/* What a region's home knows: who has copies, and who waits for one. */
static struct {
    uint64_t holders;
    enum state held_as;
    int64_t words[WORDS];
    int awaited;                       /* copies that are on their way back */
    int waiting[NODES_MAX], wanted[NODES_MAX], count;
} homes[REGIONS];

static volatile int done;

static void fail(const char *what)
{
    fprintf(stderr, "node %d: %s\n", lci_me(), what);
    exit(1);
}

/* A node sends to itself, too. */
static void tell(int to, enum op op, int region, enum state state, const int64_t *words)
{
    struct message *message = lci_send_alloc();
    int size = words ? sizeof *message : 3 * sizeof(int32_t);
    message->op = op, message->region = region, message->state = state;
    if (words)
        memcpy(message->words, words, sizeof message->words);
    if (lci_ucast_launch(to, message, size))
        fail(lci_error());
}

/* Serves the first node that waits for a region, once no copy is in its path. */
static void serve(int region)
{
    while (homes[region].count && !homes[region].awaited) {
        int node = homes[region].waiting[0];
        enum state wanted = homes[region].wanted[0];
        uint64_t others = homes[region].holders & ~(1ull << node);
        if (others && (wanted == EXCLUSIVE || homes[region].held_as == EXCLUSIVE)) {
            for (int other = 0; other < lci_size(); other++)
                if (others >> other & 1) {
                    homes[region].awaited++;
                    tell(other, TAKE_BACK, region, NONE, NULL);
                }
            return;
        }
        homes[region].holders |= 1ull << node;
        homes[region].held_as = wanted;
        tell(node, COPY, region, wanted, homes[region].words);
        homes[region].count--;
        memmove(homes[region].waiting, homes[region].waiting + 1, homes[region].count * sizeof(int));
        memmove(homes[region].wanted, homes[region].wanted + 1, homes[region].count * sizeof(int));
    }
}

static void give_back(int region)
{
    int was_written = copies[region].state == EXCLUSIVE;
    copies[region].state = NONE;
    copies[region].is_wanted = 0;
    tell(region % lci_size(), GIVEN_BACK, region, NONE, was_written ? copies[region].words : NULL);
}

int lci_upcall(int src, void *pkt, int size, int mcast)
{
    struct message message;
    if (mcast) {
        done++;
        return 0;
    }
    if (size > (int)sizeof message)
        fail("a message that is too long");
    memset(&message, 0, sizeof message);
    memcpy(&message, pkt, size);
    int region = message.region;
    if (region < 0 || region >= REGIONS)
        fail("a message about no region");
    switch (message.op) {
    case READ:
    case WRITE:
        homes[region].waiting[homes[region].count] = src;
        homes[region].wanted[homes[region].count++] = message.op == READ ? SHARED : EXCLUSIVE;
        serve(region);
        break;
    case TAKE_BACK:
        copies[region].is_wanted = 1;
        if (!copies[region].in_use)
            give_back(region);
        break;
    case GIVEN_BACK:
        if (size == sizeof message)
            memcpy(homes[region].words, message.words, sizeof message.words);
        homes[region].holders &= ~(1ull << src);
        homes[region].awaited--;
        serve(region);
        break;
    case COPY:
        memcpy(copies[region].words, message.words, sizeof message.words);
        copies[region].state = message.state;
        copies[region].in_use = 1;
        break;
    default:
        fail("a message that is none");
    }
    return 0;
}

static int64_t *start(int region, enum state wanted)
{
    /* A copy that may only be read is given back first, so that its home knows of one copy of each node. */
    if (copies[region].state == SHARED && wanted == EXCLUSIVE && !copies[region].is_wanted)
        copies[region].state = NONE;
    if (copies[region].state < wanted) {
        tell(region % lci_size(), wanted == SHARED ? READ : WRITE, region, NONE, NULL);
        while (!copies[region].in_use)
            wait_a_moment();
    }
    copies[region].in_use = 1;
    return copies[region].words;
}

static void end(int region)
{
    copies[region].in_use = 0;
    if (copies[region].is_wanted)
        give_back(region);
}

/* Serves others until all are here. */
static void barrier(void)
{
    static int barriers;
    int *pkt = lci_send_alloc();
    if (lci_bcast_launch(pkt, 0))
        fail(lci_error());
    barriers++;
    while (done < barriers * (lci_size() - 1))
        wait_a_moment();
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    if (lci_init(NULL)) {
        fprintf(stderr, "%s\n", lci_error());
        return 1;
    }
    int me = lci_me(), nodes = lci_size();
    if (nodes > NODES_MAX)
        fail("too many nodes");
    uint64_t begin = lci_now_ns();
    for (int round = 0; round < rounds; round++) {
        int region = (me * 5 + round) % REGIONS;
        int64_t *words = start(region, EXCLUSIVE);
        for (int word = 0; word < WORDS; word++)
            words[word]++;
        end(region);
        /* What others wrote is there as a whole, or not at all. */
        region = (region + 7) % REGIONS;
        words = start(region, SHARED);
        for (int word = 1; word < WORDS; word++)
            if (words[word] != words[0])
                fail("half of a region was written");
        end(region);
        wait_a_moment();
    }
    barrier();
    int64_t sum = 0;
    for (int region = 0; region < REGIONS && me == 0; region++) {
        sum += *start(region, SHARED);
        end(region);
    }
    barrier();
    if (me == 0) {
        if (sum != (int64_t)rounds * nodes)
            fail("the sum is wrong");
        printf("%d regions: right, %d additions in %.1f ms\n", REGIONS, rounds * nodes, (lci_now_ns() - begin) / 1e6);
    }
    return lci_finalize() != 0;
}
