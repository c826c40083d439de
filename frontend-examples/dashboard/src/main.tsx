import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './app/App';
import './design/tokens.css';
import './design/base.css';
import './design/controls.css';
import './design/content.css';
import './design/shell.css';
import './charts/charts.css';

const root = document.getElementById('root');
if (root) createRoot(root).render(<StrictMode><App /></StrictMode>);
