// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// Two agents on one host: one calls, the other answers and hangs up.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	start := func(name string, port uint16) *agent.Agent {
		a, err := agent.New(agent.Settings{
			UA:   ua.Settings{AOR: message.URI{Scheme: "sip", User: name, Host: "example.com"}},
			Port: port, Interfaces: []string{"lo"}, AutoAnswer: true,
		})
		if err != nil {
			panic(err)
		}
		running.Go(func() { _ = a.Run(ctx) })
		return a
	}
	port := testutil.FreePort()
	alice, bob := start("alice", testutil.FreePort()), start("bob", port)
	if _, err := alice.Call(ctx, fmt.Sprintf("sip:bob@127.0.0.1:%d", port)); err != nil {
		panic(err)
	}
	for v := range bob.Events() {
		if v.Media == nil && v.Kind == ua.Established {
			fmt.Println("bob talks to", v.Remote.User)
			_ = bob.HangUp(ctx, v.Call)
			break
		}
	}
	for v := range alice.Events() {
		if v.Media == nil {
			fmt.Println("alice:", v.Kind)
		}
		if v.Media == nil && v.Kind == ua.Ended {
			break
		}
	}
	cancel()
	running.Wait()
	// Output:
	// bob talks to alice
	// alice: ringing
	// alice: established
	// alice: ended
}
