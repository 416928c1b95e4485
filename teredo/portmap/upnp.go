// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/huin/goupnp/soap"
)

// services are those with port mappings, in the order of preference.
var services = []string{
	"urn:schemas-upnp-org:service:WANIPConnection:2",
	"urn:schemas-upnp-org:service:WANIPConnection:1",
	"urn:schemas-upnp-org:service:WANPPPConnection:1",
}

// upnpGateway speaks to one service of an Internet Gateway Device.
type upnpGateway struct {
	target  Target
	service string
	soap    *soap.SOAPClient
}

// discover finds the gateway's device and reads its description.
func discover(ctx context.Context, t Target) (*upnpGateway, error) {
	location, err := search(ctx, t)
	if err != nil {
		return nil, err
	}
	client := guard(t)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, errAnswer
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, upnpError(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: its description has HTTP status %d", errAnswer, answer.StatusCode)
	}
	service, control, err := parseDescription(answer.Body, location, t.Gateway)
	if err != nil {
		return nil, err
	}
	g := &upnpGateway{target: t, service: service, soap: soap.NewSOAPClient(*control)}
	g.soap.HTTPClient = client
	return g, nil
}

// description is what we need of a device description (UPnP Device Architecture
// 1.1 section 2.3). Its URLBase is not read: all must be at the gateway anyway.
type description struct {
	Device device `xml:"device"`
}

type device struct {
	Devices  []device `xml:"deviceList>device"`
	Services []struct {
		Type    string `xml:"serviceType"`
		Control string `xml:"controlURL"`
	} `xml:"serviceList>service"`
}

// parseDescription returns the best service that a description lists, and where
// it is controlled.
func parseDescription(r io.Reader, location *url.URL, gateway netip.Addr) (string, *url.URL, error) {
	var d description
	if err := xml.NewDecoder(r).Decode(&d); err != nil {
		return "", nil, upnpError(err)
	}
	return d.control(location, gateway)
}

// control returns the best service and where it is controlled.
func (d *description) control(location *url.URL, gateway netip.Addr) (string, *url.URL, error) {
	found := map[string]string{}
	d.Device.collect(found)
	for _, service := range services {
		text, ok := found[service]
		if !ok {
			continue
		}
		control, err := location.Parse(strings.TrimSpace(text))
		if err != nil || !at(control, gateway) {
			return "", nil, fmt.Errorf("%w: its service is at another host (%s)", errStranger, UPnP)
		}
		return service, control, nil
	}
	return "", nil, fmt.Errorf("%w (its %s device has no port mappings)", ErrNoGateway, UPnP)
}

// collect lists the services of a device and those inside it; the first of a
// kind counts.
func (d *device) collect(found map[string]string) {
	for _, s := range d.Services {
		kind := strings.TrimSpace(s.Type)
		if _, seen := found[kind]; !seen && slices.Contains(services, kind) {
			found[kind] = s.Control
		}
	}
	for i := range d.Devices {
		d.Devices[i].collect(found)
	}
}

func (g *upnpGateway) method() Method { return UPnP }

// description of the mapping in the gateway's list (RFC 6081 section 5.3.3).
const mappingDescription = "TEREDO"

// add reserves the port by the calls of RFC 6081 section 5.3.3.
func (g *upnpGateway) add(ctx context.Context) (Mapping, error) {
	local := g.target.Local
	port := strconv.Itoa(int(local.Port()))
	err := g.soap.PerformActionCtx(ctx, g.service, "AddPortMapping", &struct {
		NewRemoteHost, NewExternalPort, NewProtocol, NewInternalPort, NewInternalClient string
		NewEnabled, NewPortMappingDescription, NewLeaseDuration                         string
	}{"", port, "UDP", port, local.Addr().String(), "1", mappingDescription, "0"}, &struct{}{})
	if err != nil {
		err = upnpError(err)
		if !errors.As(err, new(refused)) {
			// The port may be reserved although the answer is missing.
			g.undo(ctx)
		}
		return Mapping{}, err
	}
	var address struct{ NewExternalIPAddress string }
	err = g.soap.PerformActionCtx(ctx, g.service, "GetExternalIPAddress", nil, &address)
	if err == nil {
		a, _ := netip.ParseAddr(strings.TrimSpace(address.NewExternalIPAddress))
		var at netip.AddrPort
		if at, err = external(a, local.Port()); err == nil {
			return Mapping{Method: UPnP, External: at}, nil
		}
	}
	g.undo(ctx)
	return Mapping{}, upnpError(err)
}

// undo gives the target's port back although ctx may be done. Whether that works
// changes nothing any more.
func (g *upnpGateway) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.target.limits().release)
	defer cancel()
	_ = g.remove(ctx, g.target.Local.Port())
}

// remove gives a port back (RFC 6081 section 5.3.5.1).
func (g *upnpGateway) remove(ctx context.Context, port uint16) error {
	err := g.soap.PerformActionCtx(ctx, g.service, "DeletePortMapping", &struct {
		NewRemoteHost, NewExternalPort, NewProtocol string
	}{"", strconv.Itoa(int(port)), "UDP"}, &struct{}{})
	if err != nil {
		return upnpError(err)
	}
	return nil
}

// upnpError puts an error in our words: its own may quote the gateway.
func upnpError(err error) error {
	var fault *soap.SOAPFaultError
	var syntax *xml.SyntaxError
	switch {
	case errors.As(err, &fault):
		return refused{UPnP, fault.Detail.UPnPError.Errorcode}
	case errors.Is(err, errAnswer), errors.Is(err, errTooLarge):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		strings.HasPrefix(err.Error(), "goupnp: error performing SOAP HTTP request"):
		return fmt.Errorf("%w in time (%s)", ErrNoGateway, UPnP)
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: it is no XML", errAnswer)
	}
	return fmt.Errorf("%w (%s)", errAnswer, UPnP)
}
