// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import "golang.org/x/sys/unix"

// here are those that this architecture has beside.
var here = map[string]int{}

const architecture = unix.AUDIT_ARCH_AARCH64
