// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package siitbpf is the fast path of a stateless translator in eBPF: programs, their tables
// and settings. What programs and this package share is in bpf/siit_settings.h.
//
// There is no state: mappings are copies of the engine's, which the daemon alone writes,
// while programs pass all packets.
package siitbpf
