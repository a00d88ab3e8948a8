/* notify.h - tells a service manager how it stands: sd_notify(3)'s protocol, without its library.
 *
 * Spec:   sd_notify(3): lines of NAME=VALUE in one datagram to the unix socket that $NOTIFY_SOCKET names ('@' first: an
 *         abstract one). Nothing is told where that is not set.
 * Owns:   nothing.
 * Errors: none: whoever listens may be gone.
 */
#ifndef PQ_PROXY_NOTIFY_H
#define PQ_PROXY_NOTIFY_H

#include "base/error.h"

void pq_notify(const char *format, ...) PQ_PRINTF(1, 2);

#endif
