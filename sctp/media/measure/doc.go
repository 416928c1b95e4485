// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package measure makes figures of what was seen of an association: chunks of data by path and TSN, messages with the
// times at which they were written and read, and what has happened to paths. It takes time from its caller, and does no
// I/O but on writers that it is given.
//
//house:part
package measure
