// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp/media/fetch"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// TestLiveView shows the server's paths on a terminal, each time in place of the last; elsewhere lines to standard error.
func TestLiveView(t *testing.T) {
	a, b := netip.MustParseAddr("2001:db8:1::b"), netip.MustParseAddr("2001:db8:1::a")
	p := fetch.Progress{Octets: 50, Total: 200, Rate: 1.5, TSN: 77, Sender: &transfer.Report{Paths: []transfer.PathReport{
		{Local: a, Remote: b, Confirmed: true, Current: true, RTO: time.Second, CWND: 4380}, {Local: b, Remote: a},
	}}}
	var out, err bytes.Buffer
	v := view{to: role.Screen{Out: &out, Err: &err, Live: true}, start: time.Now()}
	var o fetch.Options
	v.choose(&Get{Every: time.Second}, &o)
	o.Progress(p)
	o.Progress(p)
	for _, want := range []string{"50 of 200 octets (25%)", "1.50 Mbit/s", "TSN 77", "->", "active", "unconfirmed", "4380", "\x1b[4A\x1b[J"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not shown in\n%s", want, out.String())
		}
	}
	out.Reset()
	v = view{to: role.Screen{Out: &out, Err: &err}, start: time.Now()}
	v.choose(&Get{Every: time.Second}, &o)
	o.Progress(p)
	if out.Len() > 0 || strings.Count(err.String(), "\n") != 1 || strings.Contains(err.String(), "\x1b") {
		t.Errorf("without a terminal:\n%q\n%q", out.String(), err.String())
	}
}
