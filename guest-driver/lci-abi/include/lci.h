/* LCI, the low-level communication interface of Bhoedjang, Verstoep, Rühl and Bal (Table 1 of "Reducing Data and Control Transfer
 * Overhead through Network-Interface Support"), over an Ethernet interface.
 *
 * A program has one node. Packets have up to LCI_PACKET_MAX bytes; they arrive once, in order per sender and destination and per
 * sender and group. Calls that return int return -1 for an error, which lci_error explains in a sentence. Calls with a void * want the
 * first byte of a packet. Calls may come from several threads; upcalls come one at a time, and never within another. In a child that the
 * program forks, every call fails: the node is its parent's.
 */
#ifndef LCI_H
#define LCI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LCI_PACKET_MAX 1024
/* Packets of the program that may be allocated or on their path. */
#define LCI_SEND_BUFFERS 64
/* Packets that lci_upcall may keep: while the program has so many, nothing is delivered to it. */
#define LCI_KEPT_MAX 256
/* Groups that a node may be in besides that of all nodes. They exist until lci_finalize. */
#define LCI_GROUPS_MAX 64
/* Timers, numbered from 0. */
#define LCI_TIMERS 64

/* Supplied by the program: called once for each packet that arrives. pkt points to size bytes from node src; mcast is 0, or the number
 * of the group (LCI_ALL for a broadcast). If it returns 0, the library uses the packet again; otherwise the program has it until
 * lci_packet_free. While the program has LCI_KEPT_MAX packets, nothing is delivered. It may send; lci_send_alloc delivers no packets
 * while it waits in here. */
int lci_upcall(int src, void *pkt, int size, int mcast);

/* The group of all nodes. */
#define LCI_ALL 1

typedef int (*lci_upcall_t)(int src, void *pkt, int size, int mcast);

int lci_init_upcall(const char *nodes, lci_upcall_t upcall);

/* Makes this process a node, and waits for the others. nodes are the addresses of all nodes' interfaces, separated by commas, in the
 * same order everywhere; NULL takes them from LCI_NODES. The interface is the one that LCI_IFACE names. LCI_JOB (a number) keeps
 * programs on the same network from each other; LCI_TIMEOUT_S is how long to wait (30), LCI_DEAD_MS after which time a silent node is
 * removed (10000), LCI_WATCHDOG_US how long a program may leave a packet before it is interrupted (100), and LCI_BY_CARD=1 has a card that
 * the program drives itself interrupt it, which knows its exact state, and not a thread of the library. */
static inline int lci_init(const char *nodes) { return lci_init_upcall(nodes, lci_upcall); }

/* This node, from 0; the number of nodes. */
int lci_me(void);
int lci_size(void);

/* A packet to be filled. Never NULL while there is a node: it polls until one is free. */
void *lci_send_alloc(void);

/* Creates a group. All members call this with the same members, and get the same number. At most LCI_GROUPS_MAX times. */
int lci_group_create(const int *members, int nmemb);

/* Sends the first size bytes of a packet: to a node, to all others, to a group's other members. The packet is the library's
 * afterwards, even if it is not sent because there is no such node or group, or the node is gone. */
int lci_ucast_launch(int dst, void *pkt, int size);
int lci_bcast_launch(void *pkt, int size);
int lci_mcast_launch(int gid, void *pkt, int size);

/* Takes what has arrived and calls lci_upcall for each packet. Returns how many there were; -1, once, if the interface does not work any
 * more or, with LCI_IMPLEMENTATION mixed or ni, cards have lost packets: nothing is delivered behind a lost packet of its sender. */
int lci_poll(void);

/* lci_poll has found nothing that the program waits for: a program that waits calls this before it polls again. If nothing has come for
 * a while, it sleeps until a packet comes or a millisecond is over, because other programs, and other guests, may need the processor. */
int lci_idle(void);

/* Whether packets and timers interrupt the program: then lci_upcall is called in another thread. Each sets one word. Disabled at
 * first. After lci_intr_disable no upcall runs in another thread. */
int lci_intr_disable(void);
int lci_intr_enable(void);

/* Gives back a packet that lci_upcall kept, or one of lci_send_alloc that is not sent. */
int lci_packet_free(void *pkt);

/* Timer number timer ends in ns nanoseconds, with an event; starts it anew if it runs. lci_timer_stop returns 1 if it ran. */
int lci_timer_start(int timer, uint64_t ns);
int lci_timer_stop(int timer);

enum lci_event_kind {
    LCI_EVENT_TIMER = 1,    /* number: of the timer */
    LCI_EVENT_REMOVED = 2,  /* number: of the node, which is silent, was reported, or was started again */
    LCI_EVENT_EXCLUDED = 3, /* number: of a node that has removed this one; of this node, if its own card has */
    LCI_EVENT_MISMATCH = 4, /* number: of a node with another list of nodes */
    LCI_EVENT_LOST = 5      /* number: of a node of which cards have lost packets: nothing more of it is delivered */
};

struct lci_event {
    int kind;
    int number;
};

/* Takes the next event; 0 if there is none, 1 if there was one. */
int lci_next_event(struct lci_event *event);

/* A count of the library by its name (README.md lists them). */
int lci_counter(const char *name, uint64_t *value);

/* Nanoseconds of a clock that only goes forward. */
uint64_t lci_now_ns(void);

/* Why the last call of this thread failed, in a sentence; valid until its next failure. */
const char *lci_error(void);

/* Ends the conversations, with all other nodes. Returns how many of them did not end in order, those included that were removed or of
 * which packets are lost. */
int lci_finalize(void);

#ifdef __cplusplus
}
#endif

#endif
