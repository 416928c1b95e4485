// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpf

// What the programs of all translators forward, in words of their reasons.
const (
	To4Forwarded = "to4_forwarded"
	To6Forwarded = "to6_forwarded"
)
