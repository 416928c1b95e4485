// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package special holds the registries of special-purpose addresses (RFC 6890, RFC 8190)
// with what every role makes of them: which addresses a packet may be forwarded from or
// to, and which are global. The eBPF programs have the same sets, in is_illegal4 and
// is_non_global4 of the translators' headers and in is_host of fastpath/bpf/parse.h; tests
// compare them row by row.
package special
