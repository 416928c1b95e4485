// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// TestServiceRegistrar has a registrar with the rights of the packaged service: it binds its ports,
// and keeps bindings in the service's folder of state.
func TestServiceRegistrar(t *testing.T) {
	w := newWorld(t)
	s := program.NewService(t, w.ns, "[[registrar]]\ndomains = [\"example.net\"]\nlisten = [\"2001:db8::5\", \"192.0.2.5\"]\nnext_hop = \"sip:[2001:db8::2]:5060\"\n")
	p := s.Start(t)
	alice := w.phone("alice", "TCP", server6, 1)
	alice.send(alice.request("OPTIONS", "sip:[2001:db8::5]"))
	alice.expect("200")
	s.Stop(t, p, syscall.SIGUSR2)
	p = s.Start(t)
	s.End(t, p)
}
