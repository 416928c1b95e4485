// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
)

// card is hardware that can do everything.
func card(change ...func(*device)) *device {
	d := &device{
		name: "eth0", index: 2, kind: "device", driver: "ixgbe", ethernet: true, up: true, mtu: 1500, rxQueues: 4,
		native: yes, transmit: yes, fragments: yes,
	}
	for _, c := range change {
		c(d)
	}
	return d
}

// pair is one end of a veth whose far end suits XDP.
func pair(change ...func(*device)) *device {
	d := card(func(d *device) {
		d.name, d.kind, d.driver = "veth0", kindVeth, "veth"
		d.far = &farEnd{name: "host", elsewhere: true, known: true, mtu: 1500, txQueues: 1, gro: true}
	})
	for _, c := range change {
		c(d)
	}
	return d
}

func TestChoose(t *testing.T) {
	other := &program{id: 9, name: "firewall", mode: "native"}
	for _, row := range []struct {
		name    string
		mode    fastpath.Mode
		host    bool
		devices []*device
		xdp     bool
		why     string // or of the error
		refused bool
	}{
		{name: "auto, cards", mode: fastpath.ModeAuto, devices: []*device{card(), card()}, xdp: true, why: "every device takes native XDP"},
		{name: "auto, a card whose driver does not tell", mode: fastpath.ModeAuto, devices: []*device{card(func(d *device) { d.native = unknown })}, xdp: true, why: "every"},
		{name: "auto, one veth among cards", mode: fastpath.ModeAuto, devices: []*device{card(), pair()}, why: "veth0 is one end of a veth pair"},
		{name: "auto, a card without native XDP", mode: fastpath.ModeAuto, devices: []*device{card(func(d *device) { d.native = no })}, why: "eth0 cannot take native XDP, because its driver ixgbe has none"},
		{name: "auto, a bridge", mode: fastpath.ModeAuto, devices: []*device{card(func(d *device) { d.native, d.kind, d.driver = no, "bridge", "" })}, why: "a device of the kind bridge"},
		{name: "auto, another XDP program", mode: fastpath.ModeAuto, devices: []*device{card(func(d *device) { d.xdp = other })}, why: "eth0 has another XDP program, firewall (number 9)"},
		{name: "auto, a tc program", mode: fastpath.ModeAuto, devices: []*device{card(func(d *device) { d.ingress = []program{{name: "police"}} })}, why: "tc programs that XDP would go round: police"},
		{name: "auto, frames too large", mode: fastpath.ModeAuto, devices: []*device{card(func(d *device) { d.mtu, d.fragments = 9000, no })}, why: "MTU of 9000"},
		{name: "auto, large frames and fragments", mode: fastpath.ModeAuto, devices: []*device{card(func(d *device) { d.mtu = 9000 })}, xdp: true, why: "every"},
		{name: "auto, host", mode: fastpath.ModeAuto, host: true, devices: []*device{card()}, why: "XDP does not see what a host sends"},
		{name: "tc", mode: fastpath.ModeTC, devices: []*device{card()}, why: "set in the configuration"},
		{name: "xdp, veth", mode: fastpath.ModeXDP, devices: []*device{pair()}, xdp: true, why: "set in the configuration"},
		{name: "xdp, generic only", mode: fastpath.ModeXDP, devices: []*device{card(func(d *device) { d.native = no })}, refused: true, why: "generic mode only, because its driver ixgbe has no native one: set fast_path to auto or tc"},
		{name: "xdp, queues missing", mode: fastpath.ModeXDP, devices: []*device{pair(func(d *device) { d.native, d.rxQueues, d.far.txQueues = no, 1, 4 })}, refused: true, why: "veth0 has 1 receive queue, fewer than the 4"},
		{name: "xdp, queues missing, far end unseen", mode: fastpath.ModeXDP, devices: []*device{pair(func(d *device) { d.native, d.far = no, &farEnd{elsewhere: true} })}, refused: true, why: "most likely"},
		{name: "xdp, another instance's program", mode: fastpath.ModeXDP, devices: []*device{card(func(d *device) { d.xdp = &program{name: "isthmus_xdp"} })}, refused: true, why: "isthmus clean"},
		{name: "xdp, another program", mode: fastpath.ModeXDP, devices: []*device{card(func(d *device) { d.xdp = other })}, refused: true, why: "another XDP program, firewall (number 9): detach"},
		{name: "xdp, host", mode: fastpath.ModeXDP, host: true, devices: []*device{card()}, refused: true, why: "set fast_path to auto or tc"},
		{name: "off", mode: fastpath.ModeOff, devices: []*device{card()}, refused: true, why: "switched off"},
		{name: "no mode", mode: "fast", devices: []*device{card()}, refused: true, why: `"fast" is no attach mode`},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := choose(row.mode, row.host, row.devices)
			if row.refused {
				fastpathtest.WantWords(t, err, row.why)
				return
			}
			if err != nil || r.xdp != row.xdp {
				t.Errorf("chose %s and %v", r, err)
			}
			fastpathtest.WantWords(t, r.why, row.why)
		})
	}
}

func TestWarningsAndTargets(t *testing.T) {
	for _, row := range []struct {
		name   string
		d      *device
		xdp    bool
		target bool
		words  []string // nil: no warning
	}{
		{"card by XDP", card(), true, true, nil},
		{"card by tc", card(), false, true, nil},
		{"card that does not tell", card(func(d *device) { d.transmit = unknown }), true, true, nil},
		{"card that cannot transmit", card(func(d *device) { d.transmit = no }), true, false, []string{"eth0 cannot send", "the engine", "tc"}},
		{"card that is down", card(func(d *device) { d.up = false }), true, true, []string{"ip link set eth0 up"}},
		{"veth with a good far end", pair(), true, true, nil},
		{"veth by tc, far end without NAPI", pair(func(d *device) { d.transmit, d.far.gro = no, false }), false, true, nil},
		{"far end without NAPI", pair(func(d *device) { d.transmit, d.far.gro = no, false }), true, false, []string{"host in another namespace", "NAPI", "ethtool -K host gro on"}},
		{"far end without NAPI here", pair(func(d *device) { d.transmit, d.far.gro, d.far.elsewhere = no, false, false }), true, false, []string{"the far end host receives", "ethtool -K host gro on"}},
		{"unseen far end without NAPI", pair(func(d *device) { d.transmit, d.far = no, &farEnd{elsewhere: true} }), true, false, []string{"NAPI", "ethtool -K DEVICE gro on", "if the far end"}},
		{"nothing known of the far end", pair(func(d *device) { d.transmit, d.far = unknown, &farEnd{elsewhere: true} }), true, false, []string{"if the far end of veth0 receives by no NAPI", "cannot be seen"}},
		{"far end leaves checksums", pair(func(d *device) { d.far.checksum = true }), true, true, []string{"leaves checksums", "SCTP", "ethtool -K host tx off"}},
		{"far end leaves checksums, by tc", pair(func(d *device) { d.far.checksum = true }), false, true, nil},
		{"large frames without fragments", card(func(d *device) { d.mtu, d.fragments = 9000, no }), true, true, []string{"MTU of 9000", "3506"}},
		{"a tc program and XDP", card(func(d *device) { d.ingress = []program{{name: "police"}} }), true, true, []string{"go round", "police"}},
		{"a tc program and tc", card(func(d *device) { d.ingress = []program{{name: "police"}} }), false, true, []string{"police", "after ours"}},
		{"an XDP program and tc", card(func(d *device) { d.xdp = &program{id: 9} }), false, true, []string{"number 9", "first"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.d.isTarget(row.xdp); got != row.target {
				t.Errorf("is a target: %t, want %t", got, row.target)
			}
			got := row.d.warnings(row.xdp)
			if row.words == nil {
				if len(got) > 0 {
					t.Errorf("warns: %q", got)
				}
				return
			}
			fastpathtest.WantWords(t, got, row.words...)
		})
	}
}

// TestLearnXDP is of kernels that tell, and of those before 6.3.
func TestLearnXDP(t *testing.T) {
	type answers struct{ native, transmit, fragments answer }
	for _, row := range []struct {
		name     string
		d        *device
		features uint64
		told     bool
		want     answers
	}{
		{"card that can do everything", card(), xdpNeeded | xdpTransmit | xdpFragments, true, answers{yes, yes, yes}},
		{"card that cannot redirect", card(), 1, true, answers{no, no, no}},
		{"card that transmits with a program only", card(), xdpNeeded, true, answers{yes, no, no}},
		{"card, unknown features", card(), 0, false, answers{unknown, unknown, unknown}},
		{"bridge, unknown features", card(func(d *device) { d.kind = "bridge" }), 0, false, answers{no, no, unknown}},
		{"bond, unknown features", card(func(d *device) { d.kind = "bond" }), 0, false, answers{unknown, unknown, unknown}},
		{"veth, unknown features, queues missing", pair(func(d *device) { d.far.txQueues = 8 }), 0, false, answers{unknown, yes, unknown}},
		{"veth, told", pair(func(d *device) { d.far = &farEnd{elsewhere: true} }), xdpNeeded | xdpFragments, true, answers{yes, no, yes}},
		{"veth, unknown features, far end with GRO", pair(), 0, false, answers{yes, yes, unknown}},
		{"veth, unknown features, far end with XDP", pair(func(d *device) { d.far.gro, d.far.xdp = false, true }), 0, false, answers{yes, yes, unknown}},
		{"veth, unknown features, far end without NAPI", pair(func(d *device) { d.far.gro = false }), 0, false, answers{yes, no, unknown}},
		{"veth, unknown features, far end unseen", pair(func(d *device) { d.far = &farEnd{elsewhere: true} }), 0, false, answers{yes, unknown, unknown}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.d.learnXDP(row.features, row.told)
			if got := (answers{row.d.native, row.d.transmit, row.d.fragments}); got != row.want {
				t.Errorf("learned %v, want %v", got, row.want)
			}
		})
	}
}

// setFar changes a setting of the far end of the wire.
func (w *wire) setFar(t *testing.T, request, value uint32) {
	t.Helper()
	w.Far.Do(t, func() error {
		fd, err := ethtoolSocket()
		if err != nil {
			return err
		}
		_, err = ethtool(fd, "host", request, value)
		return err
	})
}

// Requests that change what the ones of the package ask for.
const (
	ethtoolSetChecksum = 0x17 // ETHTOOL_STXCSUM
	ethtoolSetGRO      = 0x2c // ETHTOOL_SGRO
)

// TestVethTraps sets real traps in another namespace.
func TestVethTraps(t *testing.T) {
	w := newWire(t)
	w.Show(t)
	w.setFar(t, ethtoolSetGRO, 0)
	w.setFar(t, ethtoolSetChecksum, 1)
	c := newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeXDP})
	r := only(t, a)
	if r.Target {
		t.Error("a device whose far end has no NAPI is a target")
	}
	fastpathtest.WantWords(t, r.Warnings, "NAPI", "ethtool -K host gro on", "leaves checksums", "ethtool -K host tx off")

	w.setFar(t, ethtoolSetGRO, 1)
	w.setFar(t, ethtoolSetChecksum, 0)
	w.Near.Do(t, func() error {
		changed, err := a.Sync()
		if !changed {
			t.Error("Sync saw no change")
		}
		return err
	})
	if r := only(t, a); !r.Target || len(r.Warnings) > 0 {
		t.Errorf("with the traps gone the report is %+v", r)
	}
}

// TestVethTrapsWithoutSight leaves the far end in a namespace that no one can
// find: what the device itself tells is still known.
func TestVethTrapsWithoutSight(t *testing.T) {
	w := newWire(t)
	w.Near.Do(t, func() error {
		d, err := deviceNamed("port")
		if err != nil {
			return err
		}
		d.look(nobody)
		if d.far.known || !d.far.elsewhere {
			t.Errorf("the far end is %+v, want nothing known but that it is elsewhere", d.far)
		}
		if _, told := xdpFeatures(d.index); !told {
			fastpathtest.WantWords(t, d.warnings(true), "if the far end of port receives by no NAPI", "cannot be seen")
			return nil
		}
		if d.native != yes || d.transmit != no {
			t.Errorf("native %d, transmit %d: want native XDP, and nothing redirected into it", d.native, d.transmit)
		}
		fastpathtest.WantWords(t, d.warnings(true), "ethtool -K DEVICE gro on", "if the far end")
		return nil
	})
}

func nobody(program) bool { return false }

func deviceNamed(name string) (*device, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return deviceAt(l.Attrs().Index)
}

func TestXDPIsRefusedWithTooFewQueues(t *testing.T) {
	w := newWire(t, func(v *netlink.Veth) {
		v.NumRxQueues, v.NumTxQueues = 1, 1
		v.PeerNumRxQueues, v.PeerNumTxQueues = 4, 4
	})
	w.Show(t)
	c := newCounter(t)
	_, err := w.attach(t, c.Programs, Config{Mode: fastpath.ModeXDP})
	fastpathtest.WantWords(t, err, "port has 1 receive queue, fewer than the 4", "set fast_path to tc")
	w.Near.Do(t, func() error {
		planned, err := Plan(Config{Name: "test", Mode: fastpath.ModeXDP})
		if err != nil {
			fastpathtest.WantWords(t, err, "1 receive queue")
			return nil
		}
		// A kernel before 6.3.
		fastpathtest.WantWords(t, planned, "this kernel does not report", "attaching shows it")
		return nil
	})
}

func TestXDPIsRefusedByGenericDevices(t *testing.T) {
	w := newWire(t)
	w.Near.Do(t, func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}); err != nil {
			return err
		}
		return fastpathtest.Up("bridge")
	})
	c := newCounter(t)
	_, err := w.attach(t, c.Programs, Config{Mode: fastpath.ModeXDP, Devices: []string{"bridge"}})
	fastpathtest.WantWords(t, err, "bridge runs XDP in the slow generic mode only", "auto or tc")
	r := only(t, w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeAuto, Devices: []string{"bridge"}}))
	if r.Hook != hookTC() {
		t.Errorf("auto chose %s", r.Hook)
	}
	fastpathtest.WantWords(t, r.Why, "bridge cannot take native XDP")
}

func TestDevicesThatAreLeftAlone(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	var excluded int
	w.Near.Do(t, func() error {
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
		for _, l := range []netlink.Link{
			b,
			&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "member"}, PeerName: "memberpeer"},
			&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "excluded"}, PeerName: "down"},
			&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "functional"}},
			&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap"}, Mode: netlink.TUNTAP_MODE_TAP},
		} {
			if err := netlink.LinkAdd(l); err != nil {
				return err
			}
		}
		member, err := netlink.LinkByName("member")
		if err != nil {
			return err
		}

		if err := netlink.LinkSetMaster(member, b); err != nil {
			return err
		}
		for _, name := range []string{"bridge", "member", "memberpeer", "excluded", "functional", "tap"} {
			if err := fastpathtest.Up(name); err != nil {
				return err
			}
		}
		x, err := netlink.LinkByName("excluded")
		excluded = x.Attrs().Index
		return err
	})
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeTC, Exclude: []int{excluded}})
	hooks := map[string]Hook{}
	for _, r := range a.Report() {
		hooks[r.Device] = r.Hook
		switch r.Device {
		case "member":
			fastpathtest.WantWords(t, r.Why, "belong to bridge")
		case "down":
			fastpathtest.WantWords(t, r.Why, "down")
		}
	}
	for _, row := range []struct {
		device string
		want   Hook
	}{
		{"port", hookTC()}, {"bridge", hookTC()}, {"memberpeer", hookTC()}, {"member", HookNone}, {"down", HookNone},
		{"lo", ""}, {"functional", ""}, {"tap", ""}, {"excluded", ""},
	} {
		if hooks[row.device] != row.want {
			t.Errorf("%s has %q, want %q", row.device, hooks[row.device], row.want)
		}
	}
	for _, row := range []struct{ device, words string }{
		{"member", "name bridge in fast_path_devices"},
		{"lo", "no Ethernet frames"},
		{"tap", "no Ethernet frames"},
		{"excluded", "the tunnel itself"},
	} {
		_, err := w.attach(t, c.Programs, Config{Name: "another", Mode: fastpath.ModeTC, Devices: []string{row.device}, Exclude: []int{excluded}})
		fastpathtest.WantWords(t, err, row.words)
	}
}
