// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package gatewaytest is a gateway between a host with IPv6 and one with IPv4, in network
// namespaces, for the tests of the translators' roles; and packets by which these see what
// the keys do that both have.
package gatewaytest
