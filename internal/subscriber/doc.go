// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package subscriber reads the file that stands for a home subscriber server: who may attach
// and register, by which names and keys, and what networks they may use. What changes while
// somebody is served, such as the sequence number of the next challenge, is not in it.
package subscriber
