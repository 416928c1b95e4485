// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package pinned keeps what outlives a process: an instance's folder in a BPF file system
// with maps, links and notes, the filters that the notes tell of, and what dead processes
// have left.
package pinned
