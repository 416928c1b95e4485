// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ggsnbpf has the fast path of a GGSN: programs in the kernel that carry the packets of
// established contexts, by records that the engine writes into memory which they share.
package ggsnbpf
