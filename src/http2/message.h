/* message.h - how the module fills a message from nghttp2's header callbacks.
 *
 * Spec:   RFC 9113, section 8.
 * Owns:   holds a reference on each name and value instead of copying it.
 * Errors: PQ_E_TOO_LONG (more than PQ_HTTP2_MAX_FIELDS or PQ_HTTP2_MAX_HEADER_LIST; the message is unchanged),
 *         PQ_E_NOMEM.
 */
#ifndef PQ_HTTP2_MESSAGE_H
#define PQ_HTTP2_MESSAGE_H

#include <nghttp2/nghttp2.h>

#include "http2/http2.h"

void pq_http2_message_init(struct pq_http2_message *m, size_t max_body);
PQ_MUST_CHECK int pq_http2_message_add(struct pq_http2_message *m, nghttp2_rcbuf *name, nghttp2_rcbuf *value);

#endif
