/* Stream sockets straight over Ethernet, for programs that ask for them by name. (Programs as they are run under esp-run.)
 *
 * Each function does what the one of sockets without "esp_" does, with the same results and errno. A connection is made over ESP where
 * the peer's host speaks it and its program listens by it (esp_listen, or esp-run), and otherwise by TCP; esp_is_esp tells which. A
 * descriptor is a real one: epoll does not know of the Ethernet port, so wait with esp_poll, and close with esp_close.
 */
#ifndef ESP_H
#define ESP_H

#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The family of struct esp_address. */
#define ESP_AF_ENET 0x4553

/* An Ethernet address and a port: where to connect to without IP. */
struct esp_address {
    uint16_t family;    /* ESP_AF_ENET */
    uint16_t port;      /* of the listener, in network byte order */
    uint32_t interface; /* number of the own interface, as if_nametoindex says it */
    uint8_t mac[6];     /* the peer's Ethernet address */
    uint8_t rest[2];    /* 0 */
};

/* Makes a socket; the family is AF_INET or AF_INET6. Its descriptor is closed by exec. */
int esp_socket(int family);
int esp_bind(int fd, const struct sockaddr *address, socklen_t len);
/* Listens by ESP and TCP. */
int esp_listen(int fd, int backlog);
/* Accepts a connection; its descriptor is closed by exec. */
int esp_accept(int fd, struct sockaddr *from, socklen_t *len);
/* Connects to an IP address or, by ESP alone, to a struct esp_address. */
int esp_connect(int fd, const struct sockaddr *to, socklen_t len);
ssize_t esp_send(int fd, const void *from, size_t len, int flags);
ssize_t esp_recv(int fd, void *to, size_t len, int flags);
ssize_t esp_sendv(int fd, const struct iovec *parts, int count);
ssize_t esp_recvv(int fd, const struct iovec *parts, int count);
int esp_poll(struct pollfd *fds, nfds_t count, int limit_ms);
int esp_shutdown(int fd, int how);
int esp_close(int fd);
/* Whether the connection is over ESP: 1, or 0. */
int esp_is_esp(int fd);

#ifdef __cplusplus
}
#endif

#endif
