/* Copies by a card that is wired to itself (Ciaccio, "Using a Self-connected Gigabit Ethernet Adapter as a memcpy() Low-Overhead Engine
 * for MPI"): the processor says what is to be copied and does something else, and a variable in memory says when it is done.
 *
 * A program has one card. Copies are done one after the other, in the order of the calls. All memory that takes part is registered
 * first. Calls return -1 for an error, which icopy_error explains in a sentence, and nothing was copied then. Calls may come from
 * several threads, and are done one after the other.
 */
#ifndef ICOPY_H
#define ICOPY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes a card, such as "0000:00:11.0", that `nicctl bind` has given to programs and that is wired to itself. NULL takes the one that
 * ICOPY_CARD names. ICOPY_TIMEOUT_MS is after which time without progress the card is given up (10000). */
int icopy_open(const char *card);

/* Stops the card: afterwards it touches no memory. Copies that are under way are lost. */
int icopy_close(void);

/* Makes memory known to the card: locks its pages and looks up where they are. It must be writable, stay mapped until it is
 * unregistered, and be treated like memory that another thread reads and writes while copies are under way. */
int icopy_register(void *memory, size_t len);

/* As icopy_register, for buffers in which a port receives: the source of icopy_k2u. */
int icopy_register_receive(void *memory, size_t len);

/* Takes a registration back, with the same arguments; waits for the copies that touch it. The pages stay known for a while, so that
 * registering them again is quick. */
int icopy_unregister(void *memory, size_t len);

/* Copies len bytes. Source and destination must not overlap. */
int icopy(void *destination, const void *source, size_t len);

/* As icopy, and then stores value in *variable, which is aligned and overlaps neither. With a len of 0 that is all. */
int icopy_notif(void *destination, const void *source, size_t len, volatile uint64_t *variable, uint64_t value);

/* As the two above, out of a receive buffer. */
int icopy_k2u(void *destination, const void *source, size_t len);
int icopy_k2u_notif(void *destination, const void *source, size_t len, volatile uint64_t *variable, uint64_t value);

/* 1 if *variable has the value and the card has given its frame back, 0 if not yet. All copies up to the one that stores it are done
 * then, and no vnicd that takes a killed one's place does them again; the variable alone says the former only. */
int icopy_test(const volatile uint64_t *variable, uint64_t value);

/* Waits until *variable has the value. -1 if no copy is under way that could store it. */
int icopy_wait(const volatile uint64_t *variable, uint64_t value);

/* Goes on with copies that were too long for the card's rings (256 frames; every other call does so, too). Returns 1 if none is
 * under way any more, else 0. */
int icopy_progress(void);

/* Why the last call of this thread failed, in a sentence; valid until its next failure. */
const char *icopy_error(void);

#ifdef __cplusplus
}
#endif

#endif
