/* How the examples wait. */
#include <lci.h>

#include <stdio.h>
#include <stdlib.h>

/* Polls, and lets others run if nothing has come. What a node that is gone should have sent never comes, so that ends the program. */
static void wait_a_moment(void)
{
    struct lci_event event;
    int count = lci_poll();
    if (count < 0) {
        fprintf(stderr, "node %d: %s\n", lci_me(), lci_error());
        exit(1);
    }
    while (lci_next_event(&event) > 0)
        if (event.kind != LCI_EVENT_TIMER) {
            fprintf(stderr, "node %d: node %d is gone\n", lci_me(), event.number);
            exit(1);
        }
    if (!count)
        lci_idle();
}
