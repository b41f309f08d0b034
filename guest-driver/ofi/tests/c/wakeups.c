/* Threads that wait for completions miss neither a signal nor an entry that another thread made, whenever it comes: the
 * moment between a thread's last look at its queue and its sleep counts as well. */

#include "end.h"

#include <pthread.h>

#define ROUNDS 2000
/* A wait that ends by its time limit missed what it was for. */
#define LIMIT_MS 20000

static struct end end;
static pthread_barrier_t both;
static bool is_signal;

static void *wait_for_both(void *nothing) {
    for (int round = 0; round < ROUNDS; round++) {
        struct fi_cq_tagged_entry entry;
        pthread_barrier_wait(&both);
        double begin = now_s();
        long result = fi_cq_sread(end.rx, &entry, 1, NULL, LIMIT_MS);
        CHECK(now_s() - begin < LIMIT_MS / 2000.0, "round %d: the thread woke late", round);
        CHECK(result == (is_signal ? -FI_EAGAIN : 1), "round %d: %ld", round, result);
        pthread_barrier_wait(&both);
    }
    return nothing;
}

/* Comes at another moment in each round. */
static void pause_for(int round) {
    for (volatile int at = round % 997; at > 0; at--)
        ;
}

static void run(bool signals) {
    is_signal = signals;
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, wait_for_both, NULL) == 0, "a thread");
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char byte = 1, got = 0;
        pthread_barrier_wait(&both);
        pause_for(round);
        if (signals) {
            FI(fi_cq_signal(end.rx));
        } else {
            AGAIN(&end, fi_trecv(end.ep, &got, 1, NULL, end.own, 1, 0, NULL));
            AGAIN(&end, fi_tinject(end.ep, &byte, 1, end.own, 1));
            /* This makes progress: often this thread finds the message that the other one waits for. */
            CHECK(fi_cq_read(end.tx, NULL, 0) <= 0, "nothing was asked for");
        }
        pthread_barrier_wait(&both);
    }
    CHECK(pthread_join(waiter, NULL) == 0, "the thread");
}

int main(int count, char **arguments) {
    CHECK(count == 2, "usage: wakeups INTERFACE");
    setenv("OMX_IFACES", arguments[1], 1);
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0, "a barrier");
    open_end(&end, -1, 0, (struct wishes){0});
    run(true);
    run(false);
    close_end(&end);
    return 0;
}
