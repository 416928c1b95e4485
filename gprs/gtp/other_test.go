// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestOtherMessages lists the elements of a message that has no type of its own: an
// SGSN Context Request, made element by element.
func TestOtherMessages(t *testing.T) {
	h := v1(TypeSGSNContextRequest, 0, 1)
	var body []byte
	for _, e := range []field{
		{ElementRAI, testutil.Unhex(t, "42f010 1234 56")}, {ElementPTMSI, testutil.Unhex(t, "c0000001")}, {ElementTEIDControl, testutil.Unhex(t, "21222324")},
		{ElementGSNAddress, testutil.Unhex(t, "c0000201")}, {ElementGSNAddress, testutil.Unhex(t, "c0000202")}, {ElementHopCounter, []byte{3}},
		{ElementExtensionList, []byte{0xc0}},
	} {
		body = AppendElement(body, e.kind, e.value)
	}
	h.Payload = body
	if _, err := ParseElements(&h); err == nil || faultOf(err) != FaultElementOrder {
		t.Errorf("elements that do not ascend: %v", err)
	}
	h.Payload = body[:len(body)-3] // without the list
	b, err := h.AppendTo(nil, len(h.Payload))
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseHeader(append(b, h.Payload...))
	if err != nil {
		t.Fatal(err)
	}
	elements, err := ParseElements(&back)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := elements.Find(ElementGSNAddress, 1); !ok || !bytes.Equal(v, testutil.Unhex(t, "c0000202")) {
		t.Errorf("second address %x, %v", v, ok)
	}
	if _, ok := elements.Find(ElementGSNAddress, 2); ok {
		t.Error("there is a third address")
	}
	if _, ok := NewMessage(h.Type); ok {
		t.Error("the message has a type")
	}
	var names []string
	for kind := range elements.All() {
		names = append(names, kind.String())
	}
	if got := strings.Join(names, ", "); got != "Routeing Area Identity, P-TMSI, TEID Control Plane, GSN Address, GSN Address, Hop Counter" {
		t.Error(got)
	}
}

// TestUpdateOfSGSN refuses an update that lacks what an SGSN must name.
func TestUpdateOfSGSN(t *testing.T) {
	whole := func() *UpdateRequest { return updateSamples()[1].message.(*UpdateRequest) }
	if err := whole().CheckFromSGSN(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[ElementType]func(*UpdateRequest){
		ElementTEIDData:   func(m *UpdateRequest) { m.TEIDData.Present = false },
		ElementGSNAddress: func(m *UpdateRequest) { m.AddressUser.Present = false },
		ElementQoS:        func(m *UpdateRequest) { m.QoS.Present = false },
	} {
		m := whole()
		spoil(m)
		if err := m.CheckFromSGSN(); err != refuse(FaultElementMissing, want) {
			t.Errorf("without %v: %v", want, err)
		}
	}
}

// TestTsharkNames holds numbers of messages, elements, causes and extension headers
// against those that tshark has names for.
func TestTsharkNames(t *testing.T) {
	known := map[string]func(n int) bool{
		"gtp.message":      func(n int) bool { return MessageType(n).Known() },
		"gtp.ie_id":        func(n int) bool { return ElementType(n).Known() },
		"gtp.cause":        func(n int) bool { return Cause(n).String() != "unknown cause" },
		"gtp.ext_hdr_type": func(n int) bool { return ExtensionType(n).Known() },
	}
	// What tshark names and we do not: 0 is reserved or none; causes of GTP'.
	foreign := map[string]map[int]bool{
		"gtp.message":      {0: true},
		"gtp.ext_hdr_type": {0: true},
		"gtp.cause":        {59: true, 60: true, 61: true, 62: true, 63: true, 177: true, 252: true, 253: true, 254: true, 255: true},
	}
	seen := map[string]int{}
	for line := range strings.Lines(tsharkValues(t)) {
		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) < 4 || columns[0] != "V" || known[columns[1]] == nil {
			continue
		}
		n, err := strconv.ParseUint(columns[2], 0, 8)
		if err != nil {
			t.Fatal(line)
		}
		seen[columns[1]]++
		if !known[columns[1]](int(n)) && !foreign[columns[1]][int(n)] {
			t.Errorf("%s %d is %s", columns[1], n, columns[3])
		}
	}
	for name := range known {
		if seen[name] < 10 {
			t.Errorf("tshark names %d of %s", seen[name], name)
		}
	}
}

// tsharkValues returns the names that tshark has for numbers.
func tsharkValues(t *testing.T) string {
	t.Helper()
	p, err := peers.Find()
	if err != nil {
		testutil.Missing(t, err)
	}
	path, err := p.Program("tshark")
	if err != nil {
		testutil.Missing(t, err)
	}
	out, err := exec.Command(path, "-G", "values").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
