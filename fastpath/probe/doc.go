// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package probe finds out what kernel and process offer the fast path, by trying.
package probe
