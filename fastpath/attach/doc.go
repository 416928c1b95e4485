// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package attach attaches programs to the devices of a host, by XDP or by tc, chooses which,
// and finds out what devices do to redirected packets.
package attach
