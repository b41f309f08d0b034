/* Each node of a ring sends to the next and broadcasts; all of it is checked. Uses every call of lci.h. */
#include <lci.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 500

static volatile int unicasts, multicasts[128], in_group;
static void *kept;
static int group;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "node %d: line %d: %s (%s)\n", lci_me(), __LINE__, #condition, lci_error()); \
            exit(1); \
        } \
    } while (0)

int lci_upcall(int src, void *pkt, int size, int mcast)
{
    int number;
    CHECK(size >= (int)sizeof number);
    memcpy(&number, pkt, sizeof number);
    if (mcast == LCI_ALL) {
        CHECK(number == multicasts[src]);
        multicasts[src]++;
    } else if (mcast) {
        /* The first may come while lci_group_create waits for the other member. */
        CHECK(!group || mcast == group);
        in_group++;
    } else {
        CHECK(src == (lci_me() + lci_size() - 1) % lci_size());
        CHECK(number == unicasts);
        unicasts++;
        if (!kept) {
            kept = pkt;
            return 1;
        }
    }
    return 0;
}

int main(void)
{
    if (lci_init(NULL)) {
        fprintf(stderr, "%s\n", lci_error());
        return 1;
    }
    int me = lci_me(), size = lci_size(), members[2] = {0, 1};
    CHECK(lci_init(NULL) == -1);
    CHECK(lci_ucast_launch(0, &me, 4) == -1);
    CHECK(lci_packet_free(&me) == -1);
    CHECK(lci_group_create(members, 1) == -1);
    CHECK(lci_timer_start(LCI_TIMERS, 1) == -1);
    if (me < 2) {
        group = lci_group_create(members, 2);
        CHECK(group > LCI_ALL);
    }
    void *unused = lci_send_alloc();
    CHECK(lci_ucast_launch(size, unused, 4) == -1 && lci_ucast_launch(-1, unused, 4) == -1);
    for (int i = 0; i < 2 * LCI_SEND_BUFFERS; i++) {
        /* The packet is the library's after an error, too. */
        CHECK(lci_bcast_launch(lci_send_alloc(), -1) == -1 && strstr(lci_error(), "size of a packet"));
    }
    pid_t child = fork();
    if (child == 0)
        _exit(lci_poll() == -1 && strstr(lci_error(), "child") && !lci_send_alloc() && lci_finalize() == -1 ? 7 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    for (int i = 0; i < ROUNDS; i++) {
        int *pkt = lci_send_alloc();
        CHECK(pkt);
        memset(pkt, 0, LCI_PACKET_MAX);
        *pkt = i;
        CHECK(lci_bcast_launch(pkt, LCI_PACKET_MAX) == 0);
        pkt = lci_send_alloc();
        *pkt = i;
        CHECK(lci_ucast_launch((me + 1) % size, pkt, sizeof i) == 0);
        CHECK(lci_ucast_launch((me + 1) % size, pkt, sizeof i) == -1);
        if (me == 0) {
            pkt = lci_send_alloc();
            *pkt = i;
            CHECK(lci_mcast_launch(group, pkt, sizeof i) == 0);
        }
        CHECK(lci_poll() >= 0);
        if (i == ROUNDS / 2)
            CHECK(lci_intr_enable() == 0);
    }
    uint64_t start = lci_now_ns();
    CHECK(lci_timer_start(3, 1000000) == 0 && lci_timer_start(4, 1000000000000) == 0);
    CHECK(lci_timer_stop(4) == 1 && lci_timer_stop(4) == 0);
    for (;;) {
        /* The rest comes by interrupts, or by polling where none is needed. */
        int done = unicasts == ROUNDS && in_group == (me == 1 ? ROUNDS : 0);
        for (int node = 0; node < size; node++)
            done &= multicasts[node] == (node == me ? 0 : ROUNDS);
        if (done)
            break;
        CHECK(lci_poll() >= 0 && lci_idle() == 0);
        CHECK(lci_now_ns() - start < 30000000000);
    }
    CHECK(lci_intr_disable() == 0);
    struct lci_event event;
    while (lci_next_event(&event) == 0) {
        CHECK(lci_poll() >= 0);
        CHECK(lci_now_ns() - start < 30000000000);
    }
    CHECK(event.kind == LCI_EVENT_TIMER && event.number == 3);
    uint64_t count;
    CHECK(lci_counter("unicasts_delivered", &count) == 0 && count == ROUNDS);
    CHECK(lci_counter("interrupts_taken", &count) == 0 && lci_counter("no such", &count) == -1);
    CHECK(kept && lci_packet_free(kept) == 0 && lci_packet_free(kept) == -1);
    CHECK(lci_finalize() == 0);
    CHECK(lci_me() == -1 && strstr(lci_error(), "lci_init"));
    puts("ring: all packets are right");
    return 0;
}
