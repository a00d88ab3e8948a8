/* banned.h - calls that do not compile, included before every file: each has a checked counterpart.
 *
 * Spec:   docs/architecture.md, "Banned calls".
 * Owns:   nothing.
 * Errors: a use is an error of the compiler.
 */
#ifndef PQ_BASE_BANNED_H
#define PQ_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets atoi atol atof strtok system popen tmpnam mktemp

#endif
