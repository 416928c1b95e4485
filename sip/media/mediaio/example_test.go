// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/mediaio"
)

// Two ends of a call in one process, of which one moves to another address. What stands
// between Offer, Answer and Accept is SIP's.
func Example() {
	host := mediaio.NewHost(mediaio.Config{})
	defer host.Close()
	home, away, far := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.9")

	heard := make(chan int, 8)
	alice, err := host.NewCall(mediaio.Settings{
		Stream: media.Settings{Source: media.Tone(440)}, Origin: home,
		OnEvent: func(e media.Event) {
			if e.Kind == media.PathHeard {
				heard <- e.Path
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer alice.Close()
	bob, err := host.NewCall(mediaio.Settings{Origin: far})
	if err != nil {
		log.Fatal(err)
	}
	defer bob.Close()
	agree := func(path int) {
		body, err := alice.Offer(path)
		if err == nil {
			body, err = bob.Answer(body, 0)
		}
		if err == nil {
			err = alice.Accept(body)
		}
		if err != nil {
			log.Fatal(err)
		}
	}

	if err := alice.Open(0, mediaio.Local{Address: home}); err != nil {
		log.Fatal(err)
	}
	if err := bob.Open(0, mediaio.Local{Address: far}); err != nil {
		log.Fatal(err)
	}
	agree(0)
	fmt.Println("heard by path", <-heard)

	if err := alice.Open(1, mediaio.Local{Address: away}); err != nil {
		log.Fatal(err)
	}
	if err := alice.Move(1); err != nil { // media at once
		log.Fatal(err)
	}
	agree(1) // the re-INVITE
	fmt.Println("heard by path", <-heard)
	// Output:
	// heard by path 0
	// heard by path 1
}
