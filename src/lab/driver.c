#include "lab/driver.h"

#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"
#include "lab/sbi.h"

static const struct pq_driver *const drivers[] = {&pq_driver_sbi};

const struct pq_driver *pq_driver_find(const char *interface, const char **names)
{
    *names = "sbi";
    for (size_t i = 0; i < PQ_COUNT(drivers); i++)
        if (strcmp(drivers[i]->interface, interface) == 0)
            return drivers[i];
    return NULL;
}
