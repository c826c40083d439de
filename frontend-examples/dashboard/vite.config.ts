import react from '@vitejs/plugin-react';
import { defineConfig, loadEnv } from 'vite';

export default defineConfig(({ mode }) => {
  /** Where `npm run dev` finds Earmark. */
  const { EARMARK_URL = 'http://127.0.0.1:7878' } = loadEnv(mode, '.', 'EARMARK_');
  return {
    // Deep links are answered with index.html, so what it names must not depend on the address it was asked under.
    base: '/dashboard/',
    plugins: [react()],
    build: {
      outDir: '../../server/static/dashboard',
      emptyOutDir: true,
      // The server's policy allows no data: scripts or styles, and a hashed file is kept for ever.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
    },
    server: { proxy: { '/graphql': { target: EARMARK_URL, ws: true, changeOrigin: true } } },
  };
});
