// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package translatebpftest holds what tests of the fast paths of translators share: packets,
// what programs leave, hosts.
package translatebpftest
