//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* What the XDP program of a stateless translator costs; see translate.h. */

#include "siit_xdp.h"
#include "translate.h"

char program_license[] SEC("license") = "Dual BSD/GPL";
