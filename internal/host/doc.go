// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package host is what an instance of a role stands on: its device with the routes to it, the
// changes of the machine that it follows, and packets of its own that go round through it. An
// instance's Run calls these parts in its own order; they know no role.
package host
