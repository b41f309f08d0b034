/* Threads that wait for completions miss neither a signal nor an entry that another thread made, whenever it comes: the
 * moment between a thread's last look at its queue and its sleep counts as well. And a thread that reads an empty queue on
 * a processor that others want, too, sleeps. */

#define _GNU_SOURCE

#include "end.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

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

static volatile bool crowds;

/* Binds the calling thread to the first processor that the program may use. */
static void share_processor(void) {
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "the processors");
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "one of them");
}

static void *crowd(void *nothing) {
    share_processor();
    while (crowds)
        sched_yield();
    return nothing;
}

/* Sleeps are voluntary switches to another thread; yields are not. */
static long sleeps(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0, "the use of resources");
    return usage.ru_nvcsw;
}

static void sleep_in_a_crowd(void) {
    pthread_t other;
    crowds = true;
    CHECK(pthread_create(&other, NULL, crowd, NULL) == 0, "a thread");
    share_processor();
    long before = sleeps();
    double until = now_s() + LIMIT_S;
    while (sleeps() - before < 50) {
        struct fi_cq_tagged_entry entry;
        CHECK(fi_cq_read(end.rx, &entry, 1) == -FI_EAGAIN, "nothing was sent");
        CHECK(now_s() < until, "%ld sleeps", sleeps() - before);
    }
    crowds = false;
    CHECK(pthread_join(other, NULL) == 0, "the thread");
}

int main(int count, char **arguments) {
    CHECK(count == 3, "usage: wakeups INTERFACE missed|crowd");
    setenv("OMX_IFACES", arguments[1], 1);
    /* Nothing but the test's own threads takes locks of the endpoint. */
    setenv("OMX_PROGRESS", "0", 1);
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0, "a barrier");
    open_end(&end, -1, 0, (struct wishes){0});
    if (strcmp(arguments[2], "crowd") == 0) {
        sleep_in_a_crowd();
    } else {
        run(true);
        run(false);
    }
    close_end(&end);
    return 0;
}
