// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package mediarole runs an SCTP media server: it sends files of a folder and synthetic sources by associations of
// several addresses and streams. Its command gets them.
package mediarole
