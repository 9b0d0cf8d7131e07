// An identity provider that runs here: the certified `oidc-provider`, with a client for the server and one for its command
// line. A test can take it away, give it other keys, and have it lie in the ID tokens that it issues.

import { createServer } from 'node:http';
import { createServer as listen } from 'node:net';
import { calculateJwkThumbprint, decodeJwt, exportJWK, generateKeyPair, SignJWT } from 'jose';
import { Provider as OidcProvider } from 'oidc-provider';

/** A port that is free now. */
export async function freePort() {
  const probe = listen();
  await new Promise((resolve) => { probe.listen(0, '127.0.0.1', resolve); });
  const { port } = probe.address();
  await new Promise((resolve) => { probe.close(resolve); });
  return port;
}

export class Provider {
  /** The people it knows, with what it says of them. */
  people = { ann: { groups: ['finance'] }, bob: { groups: [] } };
  /** Changes the claims of an ID token before it is signed anew; `{ key: 'other' }` signs with a key that nobody knows. */
  lie = null;

  constructor(server) {
    this.server = server;
  }

  /** Another site than 127.0.0.1. */
  get issuer() {
    return `http://localhost:${this.port}`;
  }

  async start() {
    this.port ??= await freePort();
    await this.newKey();
    return this;
  }

  /** Begins anew with another key; nobody is signed in any more. */
  async newKey() {
    await this.stop();
    const { privateKey } = await generateKeyPair('ES256', { extractable: true });
    const jwk = await exportJWK(privateKey);
    this.kid = await calculateJwkThumbprint(jwk);
    this.key = privateKey;
    await this.serve({ ...jwk, kid: this.kid, alg: 'ES256', use: 'sig' });
  }

  async serve(jwk) {
    const known = async (id) => this.people[id] && { accountId: id, claims: async () => ({ sub: id, ...this.people[id] }) };
    const provider = new OidcProvider(this.issuer, {
      clients: [{
        client_id: 'standfast',
        client_secret: 'a-secret-of-the-server: with %&+',
        redirect_uris: [`${this.server}/sign-in/callback`],
        post_logout_redirect_uris: [`${this.server}/sign-in`],
        backchannel_logout_uri: `${this.server}/sign-in/backchannel-logout`,
        backchannel_logout_session_required: true,
        id_token_signed_response_alg: 'ES256',
        grant_types: ['authorization_code', 'refresh_token'],
      }, {
        client_id: 'standfast-cli',
        application_type: 'native',
        token_endpoint_auth_method: 'none',
        redirect_uris: ['http://127.0.0.1/callback'],
        id_token_signed_response_alg: 'ES256',
        grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
      }],
      jwks: { keys: [jwk] },
      cookies: { keys: ['a key of cookies'] },
      claims: { openid: ['sub'], profile: ['groups', 'roles'] },
      conformIdTokenClaims: false,
      findAccount: (_, id) => known(id),
      issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
      pkce: { required: () => true },
      // It would not call this machine, where the server is.
      fetch: (url, { dispatcher, ...options }) => globalThis.fetch(url, options),
      features: {
        devInteractions: { enabled: true },
        backchannelLogout: { enabled: true },
        deviceFlow: { enabled: true },
        rpInitiatedLogout: { enabled: true },
      },
      // Nobody is asked whether the server may know who they are.
      async loadExistingGrant(ctx) {
        const { client, session } = ctx.oidc;
        const grant = new ctx.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
        grant.addOIDCScope('openid profile email offline_access');
        await grant.save();
        return grant;
      },
    });
    provider.on('server_error', (_, error) => { this.trouble = error; });
    provider.use(async (ctx, next) => {
      await next();
      if (ctx.path === '/token' && ctx.body?.id_token && this.lie) ctx.body.id_token = await this.signed(this.lie(decodeJwt(ctx.body.id_token)));
    });
    this.http = createServer(provider.callback());
    await new Promise((resolve) => { this.http.listen(this.port, '127.0.0.1', resolve); });
  }

  /** A token of this provider with any claims; with `key: 'other'` not even that. */
  async signed({ key, ...claims }, typ = 'JWT') {
    const by = key === 'other' ? (await generateKeyPair('ES256')).privateKey : this.key;
    return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: this.kid, typ }).sign(by);
  }

  async stop() {
    if (!this.http) return;
    this.http.closeAllConnections();
    await new Promise((resolve) => { this.http.close(resolve); });
    this.http = null;
  }
}
