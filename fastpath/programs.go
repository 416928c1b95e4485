// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import "github.com/cilium/ebpf"

// Programs are an instance's, one for each kind of hook. Those that its hooks do
// not need may be nil.
type Programs struct {
	XDP         *ebpf.Program // forwards, from the driver
	Ingress     *ebpf.Program // forwards, from tc
	Egress      *ebpf.Program // encapsulates what the host sends
	HostIngress *ebpf.Program // decapsulates what the host receives
}
