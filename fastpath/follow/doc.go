// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package follow keeps the next hops of programs in step with the host's routes, links and
// neighbours.
package follow
