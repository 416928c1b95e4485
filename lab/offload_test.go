// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

func TestOffloadsAreToldAsTheyAre(t *testing.T) {
	l, _ := newLab(t)
	a, b := l.Node("a"), l.Node("b")
	l.Link(a, "eth0", b, "eth0")
	mustDraw(t, l)
	before, err := a.Offloads("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(before, "tso on") || !strings.Contains(before, "tx checksum on") {
		t.Errorf("a fresh veth has %q, want segmentation and checksum offload on", before)
	}
	if err := a.DisableOffloads("eth0"); err != nil {
		t.Fatal(err)
	}
	after, err := a.Offloads("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(after, " on") || !strings.Contains(after, "tso off") {
		t.Errorf("with all off there is %q", after)
	}
	if _, err := a.Offloads("eth7"); err == nil || !strings.Contains(err.Error(), "eth7") {
		t.Errorf("error of a missing interface is %v, want its name", err)
	}
}
