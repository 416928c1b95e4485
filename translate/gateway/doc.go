// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package gateway is what translators that stand between networks have of their host: the TUN
// device with what leads packets there, what the host does with packets that pass through
// it, its addresses, a self-check. It knows neither engines nor roles.
//
//house:shared
package gateway
