/* sbi.h - the driver for the interface between 5G network functions (HTTP/2): what a cell's functions, sidecars and
 * load are.
 *
 * Spec:   TS 29.500, TS 33.501 clause 13; the programs are pqplane's own nf, proxy and load.
 * Owns:   its state: keys, topologies.
 * Errors: as lab/driver.h says.
 *
 * Option standard, nagle, window-1:  amf (load) --- nrf.   Option chain:  amf (load) --- ausf --- udm --- udr.
 * Where the deployment has sidecars, each host has one, which shares the host's namespace as in a pod.
 * Roles: consumer is the load; producer are all network functions; egress is the consumer's sidecar; ingress are the
 * others.
 */
#ifndef PQ_LAB_SBI_H
#define PQ_LAB_SBI_H

#include "lab/driver.h"

extern const struct pq_driver pq_driver_sbi;

#endif
