// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestServerChecksItself(t *testing.T) {
	r := newRig(t)
	if err := roletest.CheckSelf(t, r.serverNS, r.server, testutil.Patience); err != nil {
		t.Fatal(err)
	}
	hold, let := make(chan struct{}), make(chan struct{})
	go r.server.loop.Do(func(time.Time, *packet.Batch) { close(hold); <-let })
	<-hold
	roletest.WantProblem(t, roletest.CheckSelf(t, r.serverNS, r.server, teredotest.Vain), "did not come back from UDP 203.0.113.1:3544")
	close(let)
	if err := roletest.CheckSelf(t, r.serverNS, r.server, testutil.Patience); err != nil {
		t.Errorf("the engine goes on: %v", err)
	}
}
